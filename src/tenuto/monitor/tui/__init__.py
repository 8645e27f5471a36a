"""The monitor in a terminal: views that draw lines of cells, and the application that shows them.
It holds no logic of jobs: each line is drawn from an answer of the state provider.
"""
