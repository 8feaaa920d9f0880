"""Why the compiler chose what it chose: each strategy's price and its runner-up's."""
