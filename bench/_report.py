"""Writes docs/performance.md and its plot from the results of the last runs in bench/results."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def load(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def write(name, results):
    """Keeps the results of a driver: those of cases that were not run this time stay."""
    RESULTS.mkdir(exist_ok=True)
    kept = {result["case"]: result for result in load(name)}
    kept.update({result["case"]: result for result in results})
    (RESULTS / f"{name}.json").write_text(json.dumps(list(kept.values()), indent=1) + "\n")
    render()


def verdict(value, bar, at_most=False):
    if bar is None:
        return "–"
    return "met" if (value <= bar if at_most else value >= bar) else "not met"


def render():
    core, cluster = load("core"), load("cluster")
    page = ROOT / "docs" / "performance.md"
    page.parent.mkdir(exist_ok=True)
    notes = page.read_text().split(MARK, 1)[1] if page.exists() and MARK in page.read_text() else "\n"
    lines = [HEAD]
    if core:
        lines += ["## In process", "", "| case | TensorFlow | Ferroflow | ratio (spread) | at least | |", "|---|--:|--:|--:|--:|---|"]
        for r in core:
            lines.append(f"| {r['case']} | {r['tensorflow']:,.0f} {r['unit']} | {r['ours']:,.0f} {r['unit']} "
                         f"| **{r['ratio']:.2f}×** ({r['ratio_min']:.2f}–{r['ratio_max']:.2f}) | {r['bar']}× | {verdict(r['ratio'], r['bar'])} |")
        lines.append("")
    if cluster:
        lines += ["## On a cluster of one ps and two workers", "", "![ratios](performance.svg)", "",
                  "| case | TensorFlow, steps/s | Ferroflow, steps/s | ratio (spread) | at least | | server CPU a step, ms | of TensorFlow's | at most |",
                  "|---|--:|--:|--:|--:|---|--:|--:|--:|"]
        for r in cluster:
            t, o = r["tensorflow"], r["ours"]
            bar = f"{r['bar']}×" if r["bar"] else "–"
            cpu_bar = f"{r['cpu_bar']} ({verdict(r['cpu_ratio'], r['cpu_bar'], True)})" if r["cpu_bar"] else "–"
            lines.append(f"| {r['case']} | {t['rate']:,.1f} | {o['rate']:,.1f} | **{r['ratio']:.2f}×** ({r['ratio_min']:.2f}–{r['ratio_max']:.2f}) "
                         f"| {bar} | {verdict(r['ratio'], r['bar'])} | {t['cpu_ms']:.2f} → {o['cpu_ms']:.2f} | {r['cpu_ratio']:.2f} | {cpu_bar} |")
        lines += ["", "| case | ps peak memory, MB | of TensorFlow's | start-up to ready, s | of TensorFlow's |", "|---|--:|--:|--:|--:|"]
        for r in cluster:
            t, o = r["tensorflow"], r["ours"]
            lines.append(f"| {r['case']} | {t['ps_peak_mb']:,.0f} → {o['ps_peak_mb']:,.0f} | {r['memory_ratio']:.3f} "
                         f"| {t['startup_s']:.2f} → {o['startup_s']:.3f} | {o['startup_s'] / t['startup_s']:.4f} |")
        lines.append("")
        (ROOT / "docs" / "performance.svg").write_text(plot(cluster))
    page.write_text("\n".join(lines) + MARK + notes)


def plot(results):
    """Draws a bar for each case: how many times TensorFlow's steps, and where the least is."""
    width, left, row, scale = 760, 190, 30, 80
    body = []
    for index, r in enumerate(results):
        y = 40 + index * row
        length = min(r["ratio"] * scale, width - left - 60)
        body.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{r["case"]}</text>')
        body.append(f'<rect x="{left}" y="{y}" width="{length:.0f}" height="20" fill="#b7410e"/>')
        body.append(f'<text x="{left + length + 6:.0f}" y="{y + 15}">{r["ratio"]:.2f}×</text>')
        if r["bar"]:
            x = left + r["bar"] * scale
            body.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y - 3}" y2="{y + 23}" stroke="#333" stroke-dasharray="3 2"/>')
    height = 60 + len(results) * row
    one = left + scale
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n<text x="{left}" y="20">steps per second, TensorFlow = 1 (dashed: the least we ask for)</text>\n'
            f'<line x1="{one}" x2="{one}" y1="30" y2="{height - 20}" stroke="#999"/>\n' + "\n".join(body) + "\n</svg>\n")


MARK = "<!-- Below this line the page is written by hand. -->\n"
HEAD = """# Performance

The same TensorFlow client and the same graphs, on servers of TensorFlow 2.15.1 and on ours, in turns within one run: a ratio
says more than a figure, because machines differ. `cargo xtask bench` makes this page (`cargo xtask bench core` and
`cargo xtask bench cluster -- CASE…` parts of it); the raw figures are in `bench/results`.
"""
