"""What both HTTP servers share, the service's and the monitor's: limits of connections, the check of hosts.
Knows no route and no door.
"""
