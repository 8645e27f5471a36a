"""Names of other systems that lead to Tenuto's: each package has the name of the system it stands for."""
