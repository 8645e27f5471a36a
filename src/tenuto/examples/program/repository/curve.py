"""The program that is evolved: a curve."""

SLOPE = 0.3000
BEND = 0.0000
END = 0.0000


def curve(x: float) -> float:
    return SLOPE * x + BEND * x**3 + END * x**5
