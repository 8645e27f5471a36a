"""Says how far the curve is from a sine; agents cannot change this file."""

import json
import math

from curve import BEND, SLOPE, curve

points = [x / 10 for x in range(-30, 31)]
off = sum(abs(curve(x) - math.sin(x)) for x in points) / len(points)
print(json.dumps({"objective": -off, "measures": {"slope": SLOPE, "bend": BEND}}))
