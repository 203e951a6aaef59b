"""The environment of `python -m ferroflow` for TensorFlow 1 programs: tf.contrib, flags, Python 2, quiet output, light parameter
servers."""

import json
import os
import re
import signal
import subprocess
import sys

import harness
from test_module import run_program

CONTRIB = """
import itertools
import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib.layers import batch_norm, conv2d, l2_regularizer, optimize_loss, xavier_initializer
from tensorflow.contrib.layers.python.layers import utils
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.datasets.mnist import read_data_sets
from tensorflow.contrib.slim.python.slim.nets import inception_v3
from tensorflow.contrib.tensorboard.plugins import projector

contrib = tf.contrib
for path in (
        "slim.conv2d slim.arg_scope slim.nets.vgg slim.learning.train layers.fully_connected layers.batch_norm layers.embed_sequence "
        "training.HParams training.GreedyLoadBalancingStrategy training.byte_size_load_fn rnn.LSTMCell rnn.LayerNormBasicLSTMCell "
        "rnn.stack_bidirectional_dynamic_rnn seq2seq.BeamSearchDecoder seq2seq.AttentionWrapper crf.crf_log_likelihood "
        "lookup.index_table_from_tensor metrics.streaming_accuracy data.map_and_batch framework.arg_scope "
        "framework.get_or_create_global_step learn.RunConfig learn.learn_runner.run learn.ModeKeys learn.Experiment "
        "summary.create_file_writer legacy_seq2seq.sequence_loss_by_example opt.LazyAdamOptimizer image.rotate losses.log_loss "
        "distribute.OneDeviceStrategy factorization.KMeans factorization.KMeansClustering estimator.stop_if_no_decrease_hook util.make_tensor_proto ctc.ctc_loss").split():
    found = contrib
    for part in path.split("."):
        found = getattr(found, part)

for source in ("tf.contrib.nothing", "tf.contrib.rnn.Nothing", "exec('import tensorflow.contrib.nothing')",
               "exec('from tensorflow.contrib.layers import nothing')"):
    try:
        eval(source)
        raise SystemExit(source)
    except (AttributeError, ImportError) as error:
        assert "ferroflow has no tf.contrib." in str(error) and "limits-of-compatibility.md" in str(error), error

images = tf.random_normal([2, 8, 8, 3], seed=1)
with slim.arg_scope([conv2d], normalizer_fn=batch_norm, weights_regularizer=l2_regularizer(0.1)):
    net = conv2d(images, 4, [3, 3])
train = optimize_loss(tf.reduce_mean(slim.fully_connected(slim.flatten(net), 3)), tf.train.get_or_create_global_step(), 0.1, "Adam")

params = contrib.training.HParams(rate=0.1, layers=[1, 2], name="x", on=True).parse("rate=1,layers=[3,4],layers[1]=7,on=false")
assert params.values() == {"rate": 1.0, "layers": [3, 7], "name": "x", "on": False}
for wrong in ("rate=x", "nothing=1", "layers=3", "on=[1]", "rate"):
    try:
        params.parse(wrong)
        raise SystemExit(wrong)
    except ValueError:
        pass
with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(2, ps_strategy=contrib.training.GreedyLoadBalancingStrategy(
        2, contrib.training.byte_size_load_fn))):
    assert [tf.Variable(tf.zeros([size])).device[-1] for size in (10, 3, 3, 5, 1)] == list("01110")

# Every sequence of tags, by hand.
scores, steps, lengths = np.random.RandomState(0).randn(3, 4, 3).astype("f"), np.random.RandomState(1).randn(3, 3).astype("f"), [4, 2, 1]
tags, best = contrib.crf.crf_decode(tf.constant(scores), tf.constant(steps), tf.constant(lengths))
likelihood, _ = contrib.crf.crf_log_likelihood(tf.constant(scores), tags, tf.constant(lengths), tf.constant(steps))

# Beams that hold every sequence find the best one.
moves = np.random.RandomState(3).randn(4, 4).astype("f") * 2


class Chain(tf.nn.rnn_cell.RNNCell):
    state_size, output_size = 1, 4

    def __call__(self, inputs, state, scope=None):
        return tf.matmul(inputs, tf.constant(moves)), state


seq2seq = contrib.seq2seq
beams = seq2seq.BeamSearchDecoder(Chain(), tf.eye(4), [0, 1], 3, tf.zeros([2 * 16, 1]), 16)
found, state, _ = seq2seq.dynamic_decode(beams, maximum_iterations=4)

memory, table = tf.random_normal([2, 6, 8], seed=2), tf.get_variable("table", [11, 8])
cell = seq2seq.AttentionWrapper(contrib.rnn.LSTMCell(8), seq2seq.BahdanauAttention(8, memory, [6, 4]), 8, alignment_history=True)
layer = tf.layers.Dense(11)
helper = seq2seq.TrainingHelper(tf.nn.embedding_lookup(table, tf.zeros([2, 5], tf.int32)), [5, 3])
outputs, last, _ = seq2seq.dynamic_decode(seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32), layer), impute_finished=True)
loss = seq2seq.sequence_loss(outputs.rnn_output, tf.zeros([2, 5], tf.int32), tf.sequence_mask([5, 3], 5, tf.float32))
learn = tf.train.AdamOptimizer(0.1).minimize(loss)
normed, _ = tf.nn.dynamic_rnn(contrib.rnn.LayerNormBasicLSTMCell(5), memory, dtype=tf.float32)
server = tf.train.Server.create_local_server()
with tf.Session(server.target) as session:
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    before = session.run([train, loss])[1]
    for _ in range(5):
        session.run(learn)
    assert session.run(loss) < before
    assert session.run(last.alignment_history.stack()).shape == (5, 2, 6)
    assert session.run(normed).shape == (2, 6, 5)
    for row, length, seen, score, log_likelihood in zip(scores, lengths, *session.run([tags, best, likelihood])):
        paths = {path: sum(row[i, tag] for i, tag in enumerate(path)) + sum(steps[pair] for pair in zip(path, path[1:]))
                 for path in itertools.product(range(3), repeat=length)}
        right = max(paths, key=paths.get)
        assert tuple(seen[:length]) == right and abs(score - paths[right]) < 1e-4
        assert abs(log_likelihood - (paths[right] - np.log(np.sum(np.exp(list(paths.values())))))) < 1e-3
        assert tuple(contrib.crf.viterbi_decode(row[:length], steps)[0]) == right
    logs = moves - np.log(np.exp(moves).sum(1, keepdims=True))
    ids, totals = session.run([found.predicted_ids, state.log_probs])
    for start, sequence, total in zip((0, 1), ids[:, :, 0], totals[:, 0]):
        def score_of(path):
            last, score = start, 0.0
            for word in path:
                score, last = score + logs[last, word], word
                if word == 3:
                    break
            return score
        assert abs(total - max(score_of(path) for path in itertools.product(range(4), repeat=4))) < 1e-3
        assert abs(score_of(sequence) - total) < 1e-3
print("ALL THERE")
"""

FUSED = """
import numpy as np
import tensorflow as tf

rnn = tf.contrib.rnn
x = tf.constant(np.random.RandomState(3).normal(size=(5, 3, 4)).astype(np.float32))
pairs = []
for peephole in (False, True):
    for lengths in (None, tf.constant([5, 0, 3])):
        for cls in (lambda cell: cell, rnn.TimeReversedFusedRNN):
            name = "n%d" % len(pairs)
            fused = rnn.LSTMBlockFusedCell(6, use_peephole=peephole, name=name + "fused")
            outputs, state = cls(fused)(x, dtype=tf.float32, sequence_length=lengths)
            turn = lambda values: values
            if cls is rnn.TimeReversedFusedRNN:
                turn = lambda values: tf.reverse(values, [0]) if lengths is None else tf.reverse_sequence(values, lengths, 0, 1)
            cell = rnn.LSTMCell(6, use_peepholes=peephole, name=name + "plain")
            wanted, wanted_state = tf.nn.dynamic_rnn(cell, turn(x), lengths, dtype=tf.float32, time_major=True, scope=name)
            pairs.append((name, [outputs, *state], [turn(wanted), *wanted_state]))
same = []
for name, found, wanted in pairs:
    mine = sorted((one for one in tf.global_variables() if one.name.startswith(name + "fused")), key=lambda one: one.name)
    plain = sorted((one for one in tf.global_variables() if one.name.startswith(name + "/" + name + "plain")), key=lambda one: one.name)
    assert [one.name.split("/")[-1] for one in mine] == [one.name.split("/")[-1] for one in plain], (mine, plain)
    same += [to.assign(value) for to, value in zip(mine, plain)]
    total = lambda values: sum(tf.reduce_sum(tf.square(one)) for one in values)
    found += tf.gradients(total(found), mine[1]) + [mine[1]]
    wanted += tf.gradients(total(wanted), plain[1]) + [plain[1]]
server = tf.train.Server.create_local_server()
with tf.Session(server.target) as session:
    session.run(tf.global_variables_initializer())
    session.run(same)
    for name, found, wanted in pairs:
        for one, other in zip(*session.run([found, wanted])):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=name)
print("ALL THE SAME")
"""


def test_fused_cells_are_the_plain_ones(processes, tmp_path):
    process = run_program(processes, tmp_path, FUSED)
    assert "ALL THE SAME" in process.expect_success()


def test_contrib_is_there(processes, tmp_path):
    assert "ALL THERE" in run_program(processes, tmp_path, CONTRIB).expect_success()


def test_without_tf_slim_it_is_said_what_to_install(processes, tmp_path):
    # A package of that name that can't be imported stands for one that isn't there.
    (tmp_path / "tf_slim.py").write_text("raise ModuleNotFoundError('No module named tf_slim', name='tf_slim')\n")
    process = run_program(processes, tmp_path, """
import tensorflow as tf
for use in (lambda: tf.contrib.slim, lambda: tf.contrib.layers.conv2d):
    try:
        use()
    except (ImportError, AttributeError) as error:
        print("SAID", error)
tf.contrib.layers.fully_connected(tf.zeros([1, 2]), 3, weights_regularizer=tf.contrib.layers.l2_regularizer(0.1))
""")
    said = [line for line in process.expect_success().splitlines() if line.startswith("SAID")]
    assert len(said) == 2 and all("pip install tf_slim" in line for line in said), said


def test_flags_are_those_of_tensorflow_1(processes, tmp_path):
    process = run_program(processes, tmp_path, """
import tensorflow as tf
flags = tf.app.flags
flags.DEFINE_string("log_dir", "here", "")
flags.DEFINE_integer("v", 3, "")
flags.DEFINE_boolean("help", False, "")
flags.DEFINE_integer("verbosity", 5, "")
flags.DEFINE_string(flag_name="data", default_value="d", docstring="")
FLAGS = flags.FLAGS
FLAGS._parse_flags()
assert (FLAGS.log_dir, FLAGS.v, FLAGS.data) == ("there", 4, "d")
def main(argv):
    print("GIVEN", FLAGS.log_dir, FLAGS.v, FLAGS.help, FLAGS.verbosity, argv[1:])
tf.app.run()
""", "--log_dir=there", "--v=4", "--verbosity=6", "--unknown=1")
    assert "GIVEN there 4 False 6 ['--unknown=1']" in process.expect_success()


PYTHON_2 = """
import cPickle, os
import tensorflow as tf
import helper_of_2016
import plain
def main():
    for name, value in sorted({"a": 1}.iteritems()):
\tprint "item", name, value
    for i in xrange(7 / 2):
        print i,
    print
    try:
        raise ValueError, "five"
    except ValueError, error:
        print "caught", error, helper_of_2016.half(7), 7.0 / 2, plain.half(7)
    print tf.Session().run(tf.constant(7) / tf.constant(2)), "done"
if __name__ == "__main__":
    main()
"""


def test_python_2_is_translated(processes, tmp_path):
    (tmp_path / "helper_of_2016.py").write_text("def half(x):\n    return [y / 2 for y in xrange(x, x + 1)][0]\n")
    (tmp_path / "plain.py").write_text("def half(x):\n    return x / 2\n")
    process = run_program(processes, tmp_path, PYTHON_2)
    output = process.expect_success()
    for part in ("item a 1", "0 1 2", "caught five 3 3.5 3", "3 done", "program.py is Python 2 (line 8", "helper_of_2016.py is Python 2",
                 "plain.py is Python 2 (as the program is)"):
        assert part in output, (part, output)
    # Nothing of a translation stays for a plain Python to find.
    assert not list(tmp_path.glob("__pycache__/*")), list(tmp_path.glob("__pycache__/*"))
    # What both versions can read is what the program that imports it is.
    process = run_program(processes, tmp_path, "import plain\nprint('HALF', plain.half(7))\n", name="three.py")
    output = process.expect_success()
    assert "HALF 3.5" in output and "Python 2" not in output


def test_a_source_that_is_neither_is_an_error_of_python(processes, tmp_path):
    process = run_program(processes, tmp_path, "import tensorflow as tf\ndef f(:\n    pass\n")
    assert process.wait() != 0
    assert any("SyntaxError" in line for line in process.lines) and any("line 2" in line for line in process.lines), process.log()


def test_a_good_run_says_nothing_of_its_own(processes, tmp_path):
    process = run_program(processes, tmp_path, """
import logging
import tensorflow as tf
logging.basicConfig()
tf.logging.set_verbosity(tf.logging.INFO)
tf.logging.info("said once")
x = tf.layers.dense(tf.zeros([2, 3]), 4)
x = tf.layers.flatten(tf.layers.conv2d(tf.zeros([2, 8, 8, 3]), 4, 3))
cell = tf.nn.rnn_cell.BasicLSTMCell(4)
tf.nn.dynamic_rnn(cell, tf.zeros([2, 3, 4]), dtype=tf.float32)
tf.Assert(True, [x])
tf.TensorArray(tf.float32, 3).write(0, 1.0)
tf.Session().run(tf.constant(1.0))
""")
    lines = [line for line in process.expect_success().splitlines() if line.strip()]
    assert lines == ["INFO:tensorflow:said once"], lines


def test_the_versions_are_told():
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "python"), "FERROFLOW_BIN": harness.ferroflow_bin()}
    command = [sys.executable, "-m", "ferroflow", "--version"]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert re.search(r"TensorFlow 2\.\d+", output) and "Python 3." in output, output
    if harness.default_kind() == harness.FERROFLOW:
        assert re.search(r"^ferroflow \d+\.", output), output


def test_without_tensorflow_it_is_said_what_to_install(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tensorflow\n")
    # -S leaves out what is installed.
    command = [sys.executable, "-S", "-m", "ferroflow", script]
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "python")}
    process = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1 and "pip install tensorflow-cpu==2.15.1" in process.stderr, process.stderr
    assert "Traceback" not in process.stderr


PARAMETER_SERVER = """
import sys
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "")
flags.DEFINE_string("job_name", "", "")
FLAGS = flags.FLAGS
tf.logging.set_verbosity(tf.logging.INFO)
def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": ["localhost:1"]})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=0)
    tf.logging.info("at %s", server.target)
    LATER
    if FLAGS.job_name == "ps":
        print("TENSORFLOW", "tensorflow.python" in sys.modules, flush=True)
        server.join()
tf.app.run()
"""


def test_a_parameter_server_imports_no_tensorflow(processes, tmp_path):
    port = harness.PORTS.take()
    flags = f"--ps_hosts=127.0.0.1:{port}", "--job_name=ps"
    process = run_program(processes, tmp_path, PARAMETER_SERVER.replace("LATER", "pass"), *flags)
    assert process.wait_for(re.compile("TENSORFLOW (.*)").search, "whether it has TensorFlow")[1] == "False"
    assert any(f"at grpc://127.0.0.1:{port}" in line for line in process.lines), process.log()
    process.signal(signal.SIGINT)
    assert process.wait() != 0


def test_a_parameter_server_that_needs_tensorflow_has_it(processes, tmp_path):
    later = """import tensorflow.compat.v1
    assert isinstance(cluster, tf.train.ClusterSpec) and cluster.num_tasks("ps") == 1
    assert tf.train.Server is tensorflow.compat.v1.train.Server
    with tf.device("/job:ps/task:0"):
        print("SUM", tf.Session(server.target).run(tf.constant(1) + tf.contrib.layers.flatten(tf.ones([1, 1]))))"""
    flags = f"--ps_hosts=127.0.0.1:{harness.PORTS.take()}", "--job_name=ps"
    process = run_program(processes, tmp_path, PARAMETER_SERVER.replace("LATER", later.replace("tf.constant(1)", "tf.constant(1.0)")), *flags)
    assert process.wait_for(re.compile("TENSORFLOW (.*)").search, "whether it has TensorFlow")[1] == "True"
    assert any("SUM [[2.]]" in line for line in process.lines), process.log()
    process.signal(signal.SIGINT)
    process.wait()


def test_the_parameter_server_of_an_estimator_imports_no_tensorflow(processes, tmp_path):
    address = f"127.0.0.1:{harness.PORTS.take()}"
    config = {"cluster": {"ps": [address], "chief": ["localhost:1"]}, "task": {"type": "ps", "index": 0}}
    path = tmp_path / "program.py"
    path.write_text("import tensorflow as tf\nraise SystemExit('it runs')\ntf.estimator.train_and_evaluate(None, None, None)\n")
    process = harness.script(path, ferroflow=True, env={"TF_CONFIG": json.dumps(config)}, cwd=tmp_path)
    processes.append(process)
    process.wait_for(lambda line: "serving without TensorFlow" in line, "that it serves")
    process.wait_for(harness.READY.search, "that it is ready")
    process.signal(signal.SIGINT)
    process.wait()


def test_a_script_is_checked_before_it_runs(tmp_path, server_kind):
    if server_kind == harness.TENSORFLOW:
        return
    script = tmp_path / "program.py"
    script.write_text("""
import sys
import tensorflow as tf
server = tf.train.Server({"ps": ["ps.invalid:1"], "worker": ["worker.invalid:1"]}, job_name="worker", task_index=0)
with tf.device("/job:ps/task:0"):
    v = tf.Variable(1.0)
if "bad" in sys.argv:
    tf.py_function(lambda x: x, [v], tf.float32)
with tf.train.MonitoredTrainingSession(server.target) as session:
    session.run(v)
    raise SystemExit("a step ran")
""")
    environment = {**os.environ, "FERROFLOW_PYTHON": sys.executable, "PYTHONPATH": str(harness.ROOT / "python")}

    def check(*arguments):
        command = [harness.ferroflow_bin(), "check", script, *arguments]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    good = check("--flag=1")
    assert good.returncode == 0 and "every op can be run" in good.stdout and "device /job:ps/task:0" in good.stdout, good.stdout
    bad = check("bad")
    assert bad.returncode == 1 and "can't run: op EagerPyFunc" in bad.stdout, bad.stdout
