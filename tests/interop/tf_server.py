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
    arguments = parser.parse_args()
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
    address = server.target[len("grpc://"):]
    print(f"tensorflow server ready: /job:{arguments.job_name}/task:{arguments.task_index} at {address}", flush=True)
    server.join()


if __name__ == "__main__":
    main()
