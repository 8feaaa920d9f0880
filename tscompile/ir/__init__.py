"""The compiler's data: meshes, placements, traced graphs, plans in progress and their text form."""
