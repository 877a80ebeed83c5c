"""The built-in collection: rendering, topics, judgements, text loader."""
import hashlib
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_longdoc.data import weak_topics
from pyterrier_longdoc.data.provider import LongDocDatasetProvider
from pyterrier_longdoc.data.python_docs import PythonDocsTextLoader, collection, read_evidence
from pyterrier_longdoc.data.stdlib_modules import is_public

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def dataset():
    return LongDocDatasetProvider().get_dataset('python-docs')


@pytest.fixture(scope='module')
def documents(dataset):
    return {document['docno']: document for document in dataset.get_corpus_iter()}


def fingerprint() -> str:
    return hashlib.sha256(repr(collection()).encode()).hexdigest()


def test_provider_knows_one_data_set():
    assert list(LongDocDatasetProvider().list_dataset_names()) == ['python-docs']
    with pytest.raises(KeyError, match=r"'perl-docs'.*python-docs"):
        LongDocDatasetProvider().get_dataset('perl-docs')


def test_documents(documents):
    assert len(documents) > 500
    assert all(document.keys() == {'docno', 'title', 'text'} for document in documents.values())
    assert all(re.fullmatch(r'(module|topic):[\w.-]+', docno) for docno in documents)
    assert sum(len(document['text'].split()) > 2000 for document in documents.values()) >= 50
    assert documents['module:json']['title'].startswith('json — JSON (JavaScript Object Notation)')
    assert documents['topic:assignment']['title'] == 'Assignment statements'


def test_documents_hold_nothing_of_this_machine(documents):
    text = '\n'.join(document['title'] + document['text'] for document in documents.values())
    machine = {sys.executable, sys.prefix, sys.base_prefix, os.__file__, str(Path.home()) + os.sep, os.getcwd()}
    assert [place for place in machine if len(place) > 5 and place in text] == []
    assert not re.search(r' at 0x|\x08|^FILE$', text, re.MULTILINE)


def test_another_process_makes_the_same_collection(tmp_path):
    program = ('import sys; sys.path.insert(0, sys.argv[1]); from tests.data.test_python_docs import fingerprint; '
               'print(fingerprint())')
    environment = {'PYTHONHASHSEED': '4711', 'HOME': str(tmp_path), 'TZ': 'Asia/Tokyo', 'COLUMNS': '33',
                   'PATH': os.environ['PATH'], 'LANG': 'C', 'PYTHONPATH': os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, '-c', program, str(REPOSITORY)], cwd=tmp_path, env=environment,
                           capture_output=True, text=True, check=True)
    assert other.stdout.split()[-1] == fingerprint()


@pytest.mark.parametrize('name', ['os', 'json.decoder', 'xml.etree.ElementTree', 'concurrent.futures.thread'])
def test_public_modules(name):
    assert is_public(name)


@pytest.mark.parametrize('name', ['antigravity', 'this', 'idlelib.run', 'test.support', 'turtledemo.clock', '_io',
                                  'json.__main__', 'importlib._bootstrap', 'distutils.core', 'posix', 'rlcompleter'])
def test_modules_never_imported(name, documents):
    assert not is_public(name)
    assert f'module:{name}' not in documents


def test_other_packages_are_not_described_again(documents):
    assert 'Return True if the string is a valid Python identifier' not in documents['module:typing']['text']
    assert 'Return True if the string is a valid Python identifier' in documents['module:builtins']['text']
    assert 'getrandbits' in documents['module:random']['text']  # inherited from the private _random


def test_test_topics(dataset):
    topics, qrels = dataset.get_topics(), dataset.get_qrels('test')
    assert len(topics) >= 120
    assert topics['qid'].is_unique and topics['query'].str.lower().is_unique
    assert set(qrels['qid']) == set(topics['qid'])
    assert not qrels.duplicated(['qid', 'docno']).any()
    assert qrels['label'].dtype == 'int64' and set(qrels['label']) == {1, 2}
    assert (qrels.groupby('qid')['label'].max() == 2).all()
    assert all(isinstance(qid, str) for frame in (topics, qrels) for qid in frame['qid'])


def test_questions_do_not_name_their_answers(dataset):
    judged = dataset.get_qrels().query('label == 2').merge(dataset.get_topics(), on='qid')
    named = [(query, docno) for query, docno in zip(judged['query'], judged['docno'], strict=True)
             if re.split(r'[:.]', docno)[-1].lower() in re.findall(r'\w+', query.lower())]
    assert named == []


def test_every_judgement_has_its_evidence(dataset, documents):
    judged = dataset.get_qrels().merge(read_evidence(), on=['qid', 'docno'], how='outer')
    assert judged.notna().all(axis=None)
    missing = [(row.qid, row.docno, row.phrase) for row in judged.itertuples() if not any(
        weak_topics.find_phrase(row.phrase, documents[row.docno]['title'] + ' ' + documents[row.docno]['text']))]
    assert missing == []


def test_training_topics(dataset, documents):
    train, dev = dataset.get_topics('train'), dataset.get_topics('dev')
    everything = pd.concat([train, dev, dataset.get_topics()])
    assert len(train) >= 2000 and 100 <= len(dev) <= len(train) / 5
    assert everything['qid'].is_unique and everything['query'].str.lower().is_unique
    for variant, topics in (('train', train), ('dev', dev)):
        qrels = dataset.get_qrels(variant)
        assert set(qrels['qid']) == set(topics['qid'])
        assert set(qrels['docno']) <= documents.keys()


def test_training_sentences_are_gone(documents):
    sentences = {docno: weak_topics.to_query(document['text']).lower() for docno, document in documents.items()}
    unchanged = [topic for topic in collection().weak_topics if not topic.query.startswith('how to ')]
    assert len(unchanged) > 1000
    assert [topic.query for topic in unchanged for docno in topic.docnos
            if topic.query.lower() in sentences[docno]] == []


@pytest.mark.parametrize(('sentence', 'query'), [
    ('Return the absolute\n    version of *path*.', 'how to get the absolute version of path'),
    ('Create a socket object from the file descriptor.', 'how to create a socket object from the file descriptor'),
    ('Values of `n` below zero clear it.', 'values of n below zero clear it')])
def test_queries(sentence, query):
    assert weak_topics.to_query(sentence) == query


def test_take_topics(monkeypatch):
    monkeypatch.setattr(weak_topics, '_SHARE', 100)
    shared = 'Parse all of the text and give its words.'
    texts = {'a': f'f(x)\n    {shared}  Second part of\n    it that has just enough words here.\n\n    Short one.',
             'b': f'{shared}\n\nPhrases of evidence keep the whole paragraph they are in.  Also its neighbours.',
             **{f'c{number}': 'Boilerplate that every one of the documents has.' for number in range(4)}}
    rest, topics = weak_topics.take_topics(texts, {'b': ['evidence  KEEP']})
    assert rest['a'] == 'f(x)\n      \n\n    Short one.'
    assert rest['b'] == texts['b'].removeprefix(shared)
    assert rest['c0'] == texts['c0']
    assert {topic.query: topic.docnos for topic in topics} == {
        'how to parse all of the text and give its words': ('a', 'b'),
        'second part of it that has just enough words here': ('a',)}


def test_sentence_that_stands_elsewhere_is_not_taken(monkeypatch):
    monkeypatch.setattr(weak_topics, '_SHARE', 100)
    texts = {'a': 'Wait until all of the tasks are done.', 'b': 'x = 1 # wait until all of the tasks are done'}
    assert weak_topics.take_topics(texts, {}) == (texts, [])


def test_unknown_variant(dataset):
    for get in (dataset.get_topics, dataset.get_qrels):
        with pytest.raises(ValueError, match=r"'validation'.*'test', 'train', 'dev'"):
            get('validation')


def test_text_loader_adds_and_replaces(dataset, documents):
    frame = pd.DataFrame({'qid': ['1', '1', '2'], 'docno': ['module:json', 'topic:with', 'module:json'],
                          'text': 'old', 'score': [3., 2., 1.]}, index=[7, 7, 9])
    out = dataset.text_loader('*')(frame)
    assert out['text'].tolist() == [documents[docno]['text'] for docno in frame['docno']]
    assert out['title'].tolist() == [documents[docno]['title'] for docno in frame['docno']]
    assert out.columns.is_unique and out['score'].tolist() == [3., 2., 1.]
    assert frame['text'].tolist() == ['old'] * 3
    assert 'title' not in dataset.text_loader()(frame)


def test_text_loader_errors(dataset):
    with pytest.raises(KeyError, match="'module:perl'"):
        dataset.text_loader()(pd.DataFrame({'docno': ['module:json', 'module:perl']}))
    with pytest.raises(ValueError, match=r"'body'.*'title', 'text'"):
        dataset.text_loader(['text', 'body'])
    with pytest.raises(pt.validate.InputValidationError):
        dataset.text_loader()(pd.DataFrame({'qid': ['1']}))


def test_text_loader_is_a_good_transformer(dataset):
    loader = dataset.text_loader()
    assert loader == pickle.loads(pickle.dumps(loader)) == PythonDocsTextLoader(['text'])
    assert hash(loader) == hash(dataset.text_loader('text')) and loader != dataset.text_loader('title')
    assert loader(pd.DataFrame(columns=['qid', 'docno'])).columns.tolist() == ['qid', 'docno', 'text']
    assert pt.inspect.transformer_outputs(loader, ['qid', 'docno']) == ['qid', 'docno', 'text']
    assert 'TextLoader' in pt.schematic.draw(loader)
    assert isinstance((loader % 3).compile()[-1], PythonDocsTextLoader)


def test_info_counts_what_there_is(dataset, documents):
    info = dataset.info()
    assert info['documents'] == len(documents)
    assert info['test_topics'] == len(dataset.get_topics())
    assert info['words_median'] < info['words_mean'] < info['words_max']


def test_data_set_can_be_pickled_as_pyterrier_hands_it_out(dataset):
    dataset.get_topics = pt.datasets._core.add_tokenize_query_arg(dataset.get_topics)
    try:
        assert pickle.loads(pickle.dumps(dataset)).get_topics().equals(dataset.get_topics())
    finally:
        del dataset.get_topics
