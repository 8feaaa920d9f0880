"""The rank processes: how they are launched, watched and ended, and what each one does."""
