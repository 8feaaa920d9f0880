"""The compiler: recipe in, frozen artifact out."""
