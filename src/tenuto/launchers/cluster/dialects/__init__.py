"""The dialects of batch systems: one file each, named as the setting `dialect` names it."""
