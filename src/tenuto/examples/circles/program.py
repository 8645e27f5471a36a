"""26 circles in the unit square; the more of its side their radii make up, the better."""

# EVOLVE-BLOCK-START
LAYOUT = [
    [0.10, 0.10, 0.05],
    [0.10, 0.30, 0.05],
    [0.10, 0.50, 0.05],
    [0.10, 0.70, 0.05],
    [0.10, 0.90, 0.05],
    [0.30, 0.10, 0.05],
    [0.30, 0.30, 0.05],
    [0.30, 0.50, 0.05],
    [0.30, 0.70, 0.05],
    [0.30, 0.90, 0.05],
    [0.50, 0.10, 0.05],
    [0.50, 0.30, 0.05],
    [0.50, 0.50, 0.05],
    [0.50, 0.70, 0.05],
    [0.50, 0.90, 0.05],
    [0.70, 0.10, 0.05],
    [0.70, 0.30, 0.05],
    [0.70, 0.50, 0.05],
    [0.70, 0.70, 0.05],
    [0.70, 0.90, 0.05],
    [0.90, 0.10, 0.05],
    [0.90, 0.30, 0.05],
    [0.90, 0.50, 0.05],
    [0.90, 0.70, 0.05],
    [0.90, 0.90, 0.05],
    [0.40, 0.40, 0.05],
]
# EVOLVE-BLOCK-END


def run_packing() -> tuple[list[list[float]], list[float], float]:
    """The centers, the radii, and their sum."""
    return [row[:2] for row in LAYOUT], [row[2] for row in LAYOUT], sum(row[2] for row in LAYOUT)
