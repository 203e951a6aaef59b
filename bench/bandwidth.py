"""Measures the bandwidth between tasks by tensor size: TensorFlow's RecvTensor and each of our transports.

Run it with `cargo xtask bench bandwidth`. A step transfers 16 tensors of a size from a ps to a worker, or fewer if these exceed
16 MB together, and returns nothing to the client; all clusters are measured in turns.
"""
import argparse

import _figures
import _report
from _processes import FERROFLOW, TENSORFLOW, Clients, Servers, run_part

SECONDS = _figures.seconds(0.5)
ROUNDS = _figures.rounds(3)
BYTES = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
TRANSPORTS = ("shm", "unix", "tcp", "grpc")
STEP_TENSORS, STEP_BYTES = 16, 16 << 20


def measure(count, number, clusters, clients):
    tensors = max(1, min(STEP_TENSORS, STEP_BYTES // count))
    case = f"receive({max(count // 4, 1)}, {tensors}, 'size{number}_')"
    rates = {side: [] for side in clusters}
    for side, servers in clusters.items():
        clients.build(case, servers, side, 1, 1)
    # The first round warms up; a few steps are enough for that.
    for round_number in range(ROUNDS + 1):
        for side, servers in clusters.items():
            sample = clients.sample(servers, side, 1, SECONDS if round_number else SECONDS / 4)
            rates[side].append(sample["rate"] * tensors * count)
    for side, servers in clusters.items():
        clients.close(servers, side, 1)
    sides = {side: _figures.summary([{"rate": rate} for rate in rates[side][1:]]) for side in clusters}
    return {"case": _figures.size(count), "bytes": count, "tensors": tensors, **sides,
            **_figures.spread(sides[TENSORFLOW]["rates"], sides["shm"]["rates"]),
            "grpc_spread": _figures.spread(sides[TENSORFLOW]["rates"], sides["grpc"]["rates"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=lambda text: [int(part) for part in text.split(",")], default=BYTES,
                        help="the sizes to measure")
    arguments = parser.parse_args()
    print(_report.machine_line(SECONDS, ROUNDS), flush=True)
    clusters = {TENSORFLOW: Servers(TENSORFLOW, 1, 1)}
    clusters.update({transport: Servers(FERROFLOW, 1, 1, [f"--transport={transport}"]) for transport in TRANSPORTS})
    clients = Clients(1)
    for servers in clusters.values():
        servers.wait_ready()
    print(f"{'size':>8} " + " ".join(f"{side:>12}" for side in clusters) + "   MB/s", flush=True)
    for number, count in enumerate(arguments.bytes):
        result = measure(count, number, clusters, clients)
        figures = " ".join(f"{result[side]['rate'] / 1e6:12,.1f}" for side in clusters)
        print(f"{result['case']:>8} {figures}   ratio {result['ratio']:.2f} ({result['ratio_min']:.2f}-{result['ratio_max']:.2f})",
              flush=True)
        _report.write("bandwidth", [result], SECONDS, ROUNDS)


if __name__ == "__main__":
    run_part(main)
