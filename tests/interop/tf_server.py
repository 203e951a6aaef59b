"""A real TensorFlow server that takes our server's flags and prints our server's ready line."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--chief_hosts")
    parser.add_argument("--cluster_spec", help="job|host:port;host:port,job|host:port")
    parser.add_argument("--job_name", default="localhost")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--device_count", type=int)
    parser.add_argument("--server_def", help="a file with a serialized ServerDef")
    parser.add_argument("--attached", action="store_true", help="taken, and nothing comes of it")
    parser.add_argument("--exit_when_done", action="store_true", help="taken, and nothing comes of it")
    parser.add_argument("command", nargs="?", choices=["server"], help="so that it can stand in for our binary")
    arguments = parser.parse_args()
    if arguments.server_def:
        with open(arguments.server_def, "rb") as file:
            definition = tf.train.ServerDef.FromString(file.read())
        serve(tf.train.Server(definition), definition.job_name, definition.task_index)
        return
    spec = {
        job: hosts.split(",")
        for job, hosts in (("ps", arguments.ps_hosts), ("worker", arguments.worker_hosts),
                           ("chief", arguments.chief_hosts)) if hosts
    }
    if arguments.cluster_spec:
        for entry in arguments.cluster_spec.split(","):
            job, hosts = entry.split("|")
            spec[job] = hosts.split(";")
    if not spec:
        spec = {"localhost": [f"localhost:{arguments.port}"]}
    config = tf.ConfigProto()
    if arguments.device_count:
        config.device_count["CPU"] = arguments.device_count
    server = tf.train.Server(spec, job_name=arguments.job_name, task_index=arguments.task_index, config=config)
    serve(server, arguments.job_name, arguments.task_index)


def serve(server, job_name, task_index):
    address = server.target[len("grpc://"):]
    print(f"tensorflow server ready: /job:{job_name}/task:{task_index} at {address}", flush=True)
    server.join()


if __name__ == "__main__":
    main()
