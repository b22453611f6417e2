"""What rows and answers are usually like, in so few numbers that a record can carry it. Pure.

    rows, answers ──▶ columns ──▶ bins ──▶ counts

columns     the numbers and words that a query or a prediction has
bins        one of five for a value, or that it is missing
rows        the bins and counts of the rows that a package was made with
"""
