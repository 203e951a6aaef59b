"""`tf.contrib.learn`: its runner and configuration on `tf.estimator`, and the reader of vocabularies."""

import collections
import importlib
import pickle
import re
import sys

import numpy as np
import tensorflow as tf

from ferroflow import contrib

Estimator = tf.estimator.Estimator
DNNClassifier, DNNRegressor = tf.estimator.DNNClassifier, tf.estimator.DNNRegressor
LinearClassifier, LinearRegressor = tf.estimator.LinearClassifier, tf.estimator.LinearRegressor
DNNLinearCombinedClassifier, DNNLinearCombinedRegressor = (
    tf.estimator.DNNLinearCombinedClassifier, tf.estimator.DNNLinearCombinedRegressor)
ModelFnOps = tf.estimator.EstimatorSpec
TaskType = collections.namedtuple("TaskType", ("MASTER", "PS", "WORKER"))("master", "ps", "worker")


class ModeKeys:
    """The purpose that a model is built for."""

    TRAIN, EVAL, INFER = "train", "eval", "infer"


class RunConfig(tf.estimator.RunConfig):
    """`tf.estimator.RunConfig` with the arguments of its predecessor."""

    def __init__(self, master=None, num_cores=0, log_device_placement=False, gpu_memory_fraction=1, tf_random_seed=None,
                 save_summary_steps=100, save_checkpoints_secs=None, save_checkpoints_steps=None, keep_checkpoint_max=5,
                 keep_checkpoint_every_n_hours=10000, log_step_count_steps=100, evaluation_master="", model_dir=None,
                 session_config=None):
        if session_config is None and (num_cores or log_device_placement):
            session_config = tf.ConfigProto(
                log_device_placement=log_device_placement, inter_op_parallelism_threads=num_cores,
                intra_op_parallelism_threads=num_cores)
        given = {"save_checkpoints_steps": save_checkpoints_steps, "save_checkpoints_secs": save_checkpoints_secs}
        super().__init__(
            model_dir=model_dir, tf_random_seed=tf_random_seed, save_summary_steps=save_summary_steps,
            keep_checkpoint_max=keep_checkpoint_max, keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps, session_config=session_config,
            **{name: value for name, value in given.items() if value is not None})


class Experiment:
    """An estimator with its training and evaluation inputs."""

    def __init__(self, estimator, train_input_fn, eval_input_fn, eval_metrics=None, train_steps=None, eval_steps=100,
                 train_monitors=None, eval_hooks=None, local_eval_frequency=None, eval_delay_secs=120, continuous_eval_throttle_secs=60,
                 min_eval_frequency=None, delay_workers_by_global_step=False, export_strategies=None, train_steps_per_iteration=None,
                 checkpoint_and_export=False, saving_listeners=None):
        self._estimator = estimator
        self._train_spec = tf.estimator.TrainSpec(train_input_fn, max_steps=train_steps, hooks=list(train_monitors or []))
        self._eval_spec = tf.estimator.EvalSpec(
            eval_input_fn, steps=eval_steps, hooks=list(eval_hooks or []), start_delay_secs=eval_delay_secs,
            throttle_secs=continuous_eval_throttle_secs)

    estimator = property(lambda self: self._estimator)

    def train(self, delay_secs=None):
        return self._estimator.train(self._train_spec.input_fn, hooks=list(self._train_spec.hooks),
                                     max_steps=self._train_spec.max_steps)

    def evaluate(self, delay_secs=None, name=None):
        return self._estimator.evaluate(self._eval_spec.input_fn, steps=self._eval_spec.steps, hooks=list(self._eval_spec.hooks),
                                        name=name)

    def train_and_evaluate(self):
        return tf.estimator.train_and_evaluate(self._estimator, self._train_spec, self._eval_spec)

    continuous_train_and_eval = local_run = train_and_evaluate

    def continuous_eval(self, delay_secs=None, **_):
        return self.train_and_evaluate()

    def run_std_server(self):
        config = self._estimator.config
        tf.train.Server(config.cluster_spec, job_name=config.task_type, task_index=config.task_id).join()


def run(experiment_fn, output_dir=None, schedule=None, run_config=None, hparams=None):
    """Creates an experiment and runs its schedule; by default the one for this task."""
    if output_dir is not None and run_config is not None:
        raise ValueError("Cannot provide both `output_dir` and `run_config`")
    experiment = experiment_fn(output_dir) if run_config is None else experiment_fn(run_config, hparams)
    if not isinstance(experiment, Experiment):
        raise TypeError(f"Experiment builder did not return an Experiment instance, got {type(experiment)} instead.")
    schedule = schedule or "train_and_evaluate"
    if not callable(getattr(experiment, schedule, None)):
        raise ValueError(f"Schedule references non-existent task {schedule}")
    return getattr(experiment, schedule)()


class _Preprocessing:
    """`tf.contrib.learn.preprocessing`."""

    TOKENIZER = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)

    @classmethod
    def tokenizer(cls, iterator):
        for value in iterator:
            yield cls.TOKENIZER.findall(value)


class CategoricalVocabulary:
    """Words and their ids; id zero stands for unknown words."""

    def __init__(self, unknown_token="<UNK>", support_reverse=True):
        self._mapping = {unknown_token: 0}
        self._reverse = [unknown_token]
        self._counts = collections.Counter()
        self._frozen = False

    def __len__(self):
        return len(self._mapping)

    def freeze(self, freeze=True):
        self._frozen = freeze

    def get(self, category):
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
            self._reverse.append(category)
        return self._mapping[category]

    def add(self, category, count=1):
        if self.get(category) > 0:
            self._counts[category] += count

    def trim(self, min_frequency, max_frequency=-1):
        """Keeps words that occur more often than `min_frequency` and less often than `max_frequency`, most frequent first."""
        kept = [word for word, count in sorted(sorted(self._counts.items()), key=lambda item: item[1], reverse=True)
                if count > min_frequency and (max_frequency <= 0 or count < max_frequency)]
        self._counts = collections.Counter({word: self._counts[word] for word in kept})
        self._reverse = [self._reverse[0], *kept]
        self._mapping = {word: index for index, word in enumerate(self._reverse)}

    def reverse(self, class_id):
        return self._reverse[class_id]


class VocabularyProcessor:
    """Turns texts into rows of word ids."""

    def __init__(self, max_document_length, min_frequency=0, vocabulary=None, tokenizer_fn=None):
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or _Preprocessing.tokenizer

    def fit(self, raw_documents, unused_y=None):
        for tokens in self._tokenizer(raw_documents):
            for token in tokens:
                self.vocabulary_.add(token)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents, unused_y=None):
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents):
        for tokens in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for index, token in enumerate(tokens[:self.max_document_length]):
                row[index] = self.vocabulary_.get(token)
            yield row

    def reverse(self, documents):
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(index) for index in row)

    def save(self, filename):
        with tf.gfile.Open(filename, "wb") as file:
            file.write(pickle.dumps(self))

    @classmethod
    def restore(cls, filename):
        with tf.gfile.Open(filename, "rb") as file:
            return pickle.loads(file.read())


_Preprocessing.VocabularyProcessor, _Preprocessing.CategoricalVocabulary = VocabularyProcessor, CategoricalVocabulary
preprocessing = _Preprocessing


def infer_real_valued_columns_from_input(x):
    """Returns a column for NumPy features."""
    x = np.asarray(x)
    return [tf.feature_column.numeric_column("", shape=x.shape[1:], dtype=tf.as_dtype(x.dtype))]


def __getattr__(name):
    if name == "datasets":
        return importlib.import_module("tensorflow.contrib.learn.datasets")
    # The modules that code imports from contrib's sources: `learn_runner.run`, `run_config.RunConfig`, `model_fn.ModeKeys`.
    if name in ("learn_runner", "run_config", "model_fn", "experiment", "estimators", "text"):
        return sys.modules[__name__]
    raise AttributeError(contrib.no_such("learn." + name))
