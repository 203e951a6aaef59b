"""What a session places and measures: parts of a graph that no step needs, and cost graphs on request."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import harness

tf.disable_v2_behavior()

NOWHERE = ["/gpu:0", "/job:nowhere/task:0", "/job:worker/task:7"]


@pytest.mark.parametrize("device", NOWHERE)
def test_a_device_that_is_not_there_is_an_error_even_if_nothing_needs_it(graph, shared_cluster, device):
    needed = tf.placeholder_with_default(1.0, []) + 1.0
    with tf.device(device):
        tf.constant(2.0, name="unneeded")
    with tf.Session(shared_cluster.target) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation unneeded"):
            session.run(needed)


@pytest.mark.parametrize("device", NOWHERE)
def test_only_what_is_needed_is_placed_on_request(graph, shared_cluster, device):
    needed = tf.placeholder_with_default(1.0, []) + 1.0
    with tf.device(device):
        unneeded = tf.constant(2.0, name="unneeded") + 1.0
    config = tf.ConfigProto()
    config.graph_options.place_pruned_graph = True
    # TensorFlow's local sessions do so; its servers ignore the option.
    targets = [""] if harness.default_kind() == harness.TENSORFLOW else ["", shared_cluster.target]
    for target in targets:
        with tf.Session(target, config=config) as session:
            assert session.run(needed) == 2.0
            with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device"):
                session.run(unneeded)


def test_soft_placement_takes_another_device(graph, shared_cluster):
    with tf.device("/gpu:0"):
        value = tf.placeholder_with_default(1.0, []) + 1.0
    with tf.Session(shared_cluster.target, config=tf.ConfigProto(allow_soft_placement=True)) as session:
        assert session.run(value) == 2.0


def test_a_graph_that_was_extended_is_placed_as_a_whole(graph, shared_cluster):
    first = tf.placeholder_with_default(1.0, []) + 1.0
    with tf.Session(shared_cluster.target) as session:
        assert session.run(first) == 2.0
        with tf.device("/gpu:0"):
            tf.constant(2.0, name="unneeded")
        with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot assign a device for operation unneeded"):
            session.run(first)


def measured(session, fetch, feed, options=None):
    metadata = tf.RunMetadata()
    session.run(fetch, feed, options=options, run_metadata=metadata)
    return metadata


def costs_config(every, after=0):
    config = tf.ConfigProto()
    config.graph_options.build_cost_model = every
    config.graph_options.build_cost_model_after = after
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def test_costs_come_with_the_steps_that_were_asked_for(graph, shared_cluster):
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    product = tf.matmul(x, x, name="product")
    feed = {x: np.ones((2, 2))}
    with tf.Session(shared_cluster.target, config=costs_config(every=2, after=1)) as session:
        found = [bool(measured(session, product, feed).cost_graph.node) for _ in range(6)]
    # After the first step, every second one.
    assert found == [True, False, True, False, True, False]


def test_costs_name_the_nodes_of_all_tasks(graph, shared_cluster):
    x = tf.placeholder(tf.float32, [2, 2], name="x")
    with tf.device("/job:ps/task:0"):
        square = tf.matmul(x, x, name="square")
    with tf.device("/job:worker/task:1"):
        product = tf.matmul(square, x, name="product")
    with tf.Session(shared_cluster.target, config=costs_config(every=1)) as session:
        metadata = measured(session, product, {x: np.ones((2, 2))})
    nodes = {node.name: node for node in metadata.cost_graph.node}
    assert {"square", "product"} <= set(nodes)
    assert nodes["square"].device.startswith("/job:ps/")
    [output] = nodes["product"].output_info
    assert output.dtype == tf.float32.as_datatype_enum
    # Neither the trace nor the partitions were asked for.
    assert not metadata.step_stats.dev_stats and not metadata.partition_graphs


def test_a_session_that_asks_for_no_costs_gets_none(graph, shared_cluster):
    value = tf.placeholder_with_default(1.0, []) + 1.0
    with tf.Session(shared_cluster.target) as session:
        assert not measured(session, value, {}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)).cost_graph.node
