"""Draws the plots of docs/performance.md: bars of ratios, and lines on logarithmic axes."""
import math

COLOURS = {"TensorFlow": "#777777", "Ferroflow": "#b7410e"}
MORE_COLOURS = ("#b7410e", "#e08e45", "#3a6ea5", "#6a994e")
FONT = 'font-family="sans-serif" font-size="13"'


def bars(results):
    """Draws a bar for each case with its ratio to TensorFlow's steps, and its bar to reach."""
    width, left, row = 780, 310, 30
    most = max([4.0] + [max(r["ratio"], r["bar"] or 0) for r in results])
    scale = (width - left - 70) / most
    body = []
    for index, r in enumerate(results):
        y = 40 + index * row
        length = r["ratio"] * scale
        body.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(r["case"])}</text>')
        body.append(f'<rect x="{left}" y="{y}" width="{length:.0f}" height="20" fill="#b7410e"/>')
        if r["bar"]:
            x = left + r["bar"] * scale
            body.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y - 3}" y2="{y + 23}" stroke="#333" stroke-dasharray="3 2"/>')
        # The white edge keeps the number readable if it overlaps the line of the bar to reach.
        body.append(f'<text x="{left + length + 6:.0f}" y="{y + 15}" stroke="white" stroke-width="4" '
                    f'paint-order="stroke">{r["ratio"]:.2f}×</text>')
    height = 60 + len(results) * row
    one = left + scale
    title = f'<text x="{left}" y="20">steps per second, TensorFlow = 1 (dashed: the least we ask for)</text>'
    axis = f'<line x1="{one:.0f}" x2="{one:.0f}" y1="30" y2="{height - 20}" stroke="#999"/>'
    return document(width, height, [title, axis, *body])


def panels(all_panels):
    """Draws panels of lines below each other, with logarithmic axes.

    A panel is {"title", "x_label", "x_format", "y_format", "series": {name: [(x, y)]}}.
    """
    width, height = 760, 300
    body = []
    for index, panel in enumerate(all_panels):
        body += lines(panel, index * height, width, height)
    return document(width, height * len(all_panels), body)


def lines(panel, top, width, height):
    left, right, above, below = 80, 230, 40, 50
    points = [point for series in panel["series"].values() for point in series]
    if not points:
        return []
    xs = sorted({x for x, _ in points})
    low, high = math.floor(math.log10(min(y for _, y in points))), math.ceil(math.log10(max(y for _, y in points)))
    high = max(high, low + 1)
    x_span = math.log(xs[-1] / xs[0]) or 1.0

    def place(x, y):
        across = left + (width - left - right) * math.log(x / xs[0]) / x_span
        up = (math.log10(y) - low) / (high - low)
        return across, top + above + (height - above - below) * (1 - up)

    body = [f'<text x="{left}" y="{top + 20}" font-weight="bold">{escape(panel["title"])}</text>',
            f'<text x="{(left + width - right) / 2:.0f}" y="{top + height - 8}" text-anchor="middle">{escape(panel["x_label"])}</text>']
    for power in range(low, high + 1):
        _, y = place(xs[0], 10.0 ** power)
        body.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        body.append(f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{escape(panel["y_format"](10.0 ** power))}</text>')
    for x in xs:
        across, _ = place(x, 10.0 ** low)
        body.append(f'<text x="{across:.0f}" y="{top + height - below + 18}" text-anchor="middle" font-size="11">{escape(panel["x_format"](x))}</text>')
    others = iter(MORE_COLOURS * 4)
    for number, (name, series) in enumerate(panel["series"].items()):
        side = name.split(",")[0]
        colour = COLOURS.get(side) or next(others)
        dashes = ' stroke-dasharray="5 3"' if "," in name and number % 4 >= 2 else ""
        places = [place(x, y) for x, y in series]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        key = top + above + 20 * number
        body.append(f'<line x1="{width - right + 14}" x2="{width - right + 40}" y1="{key}" y2="{key}" stroke="{colour}" stroke-width="2"{dashes}/>')
        body.append(f'<text x="{width - right + 46}" y="{key + 4}">{escape(name)}</text>')
    return body


def document(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n")


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")
