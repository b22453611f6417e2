"""Arithmetic only: selection policies, losses and batch-size controllers. No I/O, no clock, no global randomness.

contract, registry                            what a selection policy is; the policies by name
single, epsilon_greedy, ucb1, discounted_ucb, thompson, exp3      ask one model
exp4, class_vote                              ask every model and weigh the answers
linucb, linear_thompson, context_tree, timely    decide by features, or by latencies
arm_sets, means, linear, linear_policy, logweights, class_counts, best_arm, feature_counts
                                              what they, or several of them, share
losses, combine, draw                         losses; answers into one; the draw of a decision
batching                                      what a batch controller is; the controllers by name
aimd, deferred, fixed, quantile               the controllers
allowed_sizes, fixed.Linger                   what several controllers share
errors                                        what can go wrong, and building by name
"""
