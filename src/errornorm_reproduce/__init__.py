"""The paper's tables and figures as a command, with our numbers beside the paper's.

A second package beside the library: it may import anything of it, and nothing of it imports this one but the verb
`errornorm reproduce`, when it is called.
"""
