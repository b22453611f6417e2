"""Velox (CIDR 2015) and LASER (WSDM 2014): weights of users, features, two speeds."""
