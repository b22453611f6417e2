"""Signatures of packages, in the format of OpenSSF's model signing: a Sigstore bundle of an in-toto statement.

statement   pure: the digest of every file, as what is signed
bundle      pure: the file `model.sig` around it
keys        the keys and their arithmetic; it alone imports `cryptography`
signed      signs a folder; refuses one that is not signed as it lies there
"""
