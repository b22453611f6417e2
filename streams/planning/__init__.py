"""Plans the hosts of each pool: from rates, profiles and objectives to records of topic `plan`. Pure.

planner  folds what is published about models, and plans each pool by epochs
spread   gives the partitions of a group to its members as a plan says
"""
