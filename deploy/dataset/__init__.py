"""The log of an application as files: inputs, answers, decisions and labels, a row for each query."""
