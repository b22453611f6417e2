"""A folder of packages as the source of which versions run.

folder     the packages below it, each read again only when its files have changed
aspired    pure: the versions of a model that are in the folder ─▶ what is to be published
watcher    looks again and again: folder ─▶ aspired ─▶ topic `models`
"""
