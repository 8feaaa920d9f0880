"""The front end: the OpenAI API over HTTP and the terminal, in a process without torch."""
