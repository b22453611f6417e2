"""A deployment as processes: which parts each role is built from, and how all of them are started and watched."""
