"""Multi-head latent attention and the cache of latents that it reads."""
