"""Drawing tokens on the device, from the logits that a program leaves there."""
