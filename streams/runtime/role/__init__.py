"""One role at work: reads, calls its kernel, performs effects, commits.

definition       what a role is, and what its loop is connected to
loop             puts the parts together and runs them
reader           polls within bounds, gives records to the kernel, finds the record a kernel fails on
poll_buffer      what a poll has brought and the kernel has not been given, in records and in whole batches
follower         topics that every member reads from the beginning: applications, models
kernel_calls     calls the kernel with records and at its deadlines; what the kernel raises ends here
effects          performs the kernel's effects
local            what kernels of one process give each other, unencoded and without the broker
accumulator      records and finished batches to be produced, by partition; one batch in flight on each
state_queue      reads and writes policy states, in the order asked for
state_batches    how many states go into one read or write
rebalance        assigned and revoked partitions, start positions, starting over
recall           tells a kernel what its role has written since what it begins with
dead_letters     copies of records that cannot be used, with their cause
watchdog         notices a client or a clock that only a new process can mend
"""
