"""The graph stage of Socialformer: weights, sampling and circles, against NumPy and against plain loops, in one run.

``python -m tests.benchmarks.graph [--lengths 512 1024 2048 4096 8192] [--loops 2048]``. The yardstick is the time that
NumPy takes to draw n²/2 uniform numbers. Loops, as the published code has them, are timed up to ``--loops`` tokens.
"""

import argparse
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pyterrier_longdoc.graph import SocialWeights, friend_circles, query_distance, sample_graph, tf_idf
from tests.benchmarks.measuring import peak_mib, seconds, show

VOCABULARY, DENSITY, DOCUMENTS = 30_000, 0.07, 8


def document(n, seed=0):
    """Token ids, Zipf distributed as in real text, a query of four terms, IDF and centrality."""
    random = np.random.default_rng(seed)
    tokens = np.minimum(random.zipf(1.2, n), VOCABULARY - 1)
    idf = np.log1p(1e5 / random.integers(1, 9_000, VOCABULARY))
    return tokens, np.array([50, 300, 11, 9_000]), idf, random.random(n) ** 2


def weigh(tokens, query, idf, central):
    weights = SocialWeights(len(tokens), True, tf_idf(tokens, idf), query_distance(tokens, query), central)
    return weights, weights.factors, weights.profile


def whole(parts, seed=0):
    weights = weigh(*parts)[0]
    return friend_circles(sample_graph(weights, DENSITY, seed), weights=weights)


def with_numpy(tokens, query, idf, central):
    """The same with matrices: the best that NumPy does."""
    n, random = len(tokens), np.random.default_rng(0)
    matrix = weigh(tokens, query, idf, central)[0].probabilities()
    matrix *= DENSITY * n * n / matrix.sum()
    graph = np.triu(random.random((n, n), dtype=np.float32) < matrix, 1)
    graph |= graph.T
    degrees, circles = graph.sum(1), []
    for _ in range(16):
        centre = degrees.argmax()
        circle = np.r_[centre, np.flatnonzero(graph[centre])[:127]]
        circles.append(circle)
        degrees -= graph[circle].sum(0)
        graph[circle] = graph[:, circle] = False
        degrees[circle] = 0
    return circles


def with_loops(tokens, query, idf, central):
    """The same with a loop over pairs for each step, as in the published code."""
    n, random = len(tokens), np.random.default_rng(0)
    weights = weigh(tokens, query, idf, central)[0]
    products = [[[float(a * b) for b in row] for a in row] for row in weights.factors]
    matrix = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            near = 0.3 / (1 + abs(i - j) / 50) ** 2
            matrix[i][j] = products[0][i][j] + products[1][i][j] + products[2][i][j] + near
    matrix *= DENSITY * n * n / matrix.sum()
    graph = np.zeros((n, n), dtype=int)
    for i in range(n):
        for j in range(i + 1):
            if random.random() <= matrix[i][j]:
                graph[i][j] = graph[j][i] = 1
    circles = []
    for _ in range(16):
        degrees = [sum(row) for row in graph.tolist()]
        centre = degrees.index(max(degrees))
        circle = [centre, *(j for j in range(n) if graph[centre][j] and j != centre)][:128]
        circles.append(circle)
        for node in circle:
            graph[node, :] = graph[:, node] = 0
    return circles


def row_of(n, loops):
    parts = document(n)
    weights = weigh(*parts)[0]
    graph = sample_graph(weights, DENSITY)
    random, results = np.random.default_rng(0), {"tokens": n}
    draw = seconds(lambda: random.random(n * n // 2, dtype=np.float32), 9)
    results["weights"] = seconds(lambda: weigh(*parts), 9)
    results["sampling"] = seconds(lambda: sample_graph(weights, DENSITY), 9)
    for partition in ("node", "edge"):
        results[partition] = seconds(lambda p=partition: friend_circles(graph, partition=p, weights=weights), 9)
    all_of_it = seconds(lambda: whole(parts), 9)
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as pool:
            work = seconds(lambda pool=pool: list(pool.map(whole, [parts] * DOCUMENTS)), 5)
            results[f"all, {threads} thr."] = work / DOCUMENTS
    results = {name: value if name == "tokens" else 1e3 * value for name, value in results.items()}
    results["/ draws"] = all_of_it / draw
    results["NumPy ms"] = 1e3 * seconds(lambda: with_numpy(*parts), 1)
    if n <= loops:
        start = time.perf_counter()
        with_loops(*parts)
        results["x loops"] = (time.perf_counter() - start) / all_of_it
    tracemalloc.start()
    whole(parts)
    results["MiB"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1_024, 2_048, 4_096, 8_192])
    parser.add_argument("--loops", type=int, default=2_048)
    args = parser.parse_args()
    before = peak_mib()
    whole(document(args.lengths[-1]))
    print(f"{args.lengths[-1]} tokens: peak memory {peak_mib() - before:.0f} MiB over that before, compiling included")
    rows = [row_of(n, args.loops) for n in args.lengths]
    show("Graph stage of a document, ms; 16 circles, density .07; all: weights, sampling and node circles", rows)
    named = {row["tokens"]: row["all, 1 thr."] for row in rows}
    if {2_048, 8_192} <= named.keys():
        print(f"8,192 tokens take {named[8_192] / named[2_048]:.1f} times as long as 2,048")


if __name__ == "__main__":
    main()
