"""The duration of measurements, and statistics of samples: medians, ratios and their spread."""
import os
import statistics


def seconds(default):
    return float(os.environ.get("FERROFLOW_BENCH_SECONDS", default))


def rounds(default):
    return int(os.environ.get("FERROFLOW_BENCH_ROUNDS", default))


def summary(samples):
    """Returns the medians of samples of {"rate", "cpu_ms", …}, and the single rates."""
    result = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    result["rates"] = [sample["rate"] for sample in samples]
    return result


def spread(theirs, ours):
    """Returns the ratio of rates that were measured in turns, round by round: its median, minimum and maximum."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    return {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}


def share(part, whole):
    """Returns our value as a fraction of TensorFlow's; None if that was too small to be measured."""
    return part / whole if whole else None


def compare(case, theirs, ours, row):
    """Returns the result of a case on two clusters."""
    return {
        "case": case, "tensorflow": theirs, "ours": ours, "bar": row.bar, "cpu_bar": row.cpu_bar,
        "memory_bar": row.memory_bar, **spread(theirs["rates"], ours["rates"]),
        "cpu_ratio": share(ours["cpu_ms"], theirs["cpu_ms"]),
        "memory_ratio": share(ours["ps_peak_mb"], theirs["ps_peak_mb"]),
    }


def line(result):
    """Formats the result of a case on two clusters as a line for the terminal."""
    theirs, ours = result["tensorflow"], result["ours"]
    cpu_ratio = "–" if result["cpu_ratio"] is None else f"{result['cpu_ratio']:.2f}"
    return (f"{result['case']:42} {theirs['rate']:9.1f} {ours['rate']:9.1f} steps/s  ratio {result['ratio']:5.2f} "
            f"({result['ratio_min']:.2f}-{result['ratio_max']:.2f}; bar {result['bar']})  "
            f"server CPU {theirs['cpu_ms']:.2f} {ours['cpu_ms']:.2f} ms = {cpu_ratio} (bar {result['cpu_bar']})  "
            f"client CPU {theirs['client_cpu_ms']:.2f} {ours['client_cpu_ms']:.2f} ms  "
            f"ps peak {theirs['ps_peak_mb']:.0f} {ours['ps_peak_mb']:.0f} MB")


def size(count):
    """Formats a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1024:
            return f"{count:g} {unit}"
        count /= 1024
    return f"{count:g} GB"
