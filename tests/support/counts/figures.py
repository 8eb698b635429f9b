"""The figures by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.support.counts import around, names, rooms, shape, words
from tests.support.counts.tree import Tree

# Each figure is the number of places that its function returns.
FIGURES: dict[str, Callable[[Tree], list[str]]] = {
    "args_without_noun": words.args_without_noun,
    "args_that_are_a_clause": words.args_that_are_a_clause,
    "docstrings_that_open_as_a_riddle": words.docstrings_that_open_as_a_riddle,
    "variables_its_told_said_found_asked_wanted_made": words.vague_variables,
    "damaged_docstrings": words.damaged_docstrings,
    "file_names_twice": names.file_names_twice,
    "class_names_twice": names.class_names_twice,
    "core_class_names_twice": names.core_class_names_twice,
    "circles_of_files": rooms.circles_of_files,
    "circles_of_rooms_depth1": partial(rooms.circles_of_rooms, depth=1),
    "circles_of_rooms_depth2": partial(rooms.circles_of_rooms, depth=2),
    "rooms_of_more_than_20_files": rooms.rooms_of_more_than_20_files,
    "modules_importing_more_than_15": rooms.modules_importing_more_than_15,
    "environment_reads_outside_settings": rooms.environment_reads_outside_settings,
    "functions_over_6_parameters": shape.functions_over_6_parameters,
    "functions_over_40_lines": shape.functions_over_40_lines,
    "classes_over_20_methods": shape.classes_over_20_methods,
    "ownership_questions": shape.ownership_questions,
    "host_port_parsers": shape.host_port_parsers,
    "handlers_by_hand": shape.handlers_by_hand,
    "current_job_calls": shape.current_job_calls,
    "members[Engine]": partial(
        shape.core_members, header="custom_ops/core/engine/engine.h", name="Engine"
    ),
    "members[TableWriter]": partial(
        shape.core_members, header="custom_ops/core/store/table_writer.h", name="TableWriter"
    ),
    "imports_from_test_modules": around.imports_from_test_modules,
    "patches_whose_file_is_gone": around.patches_whose_file_is_gone,
    "patches_whose_suite_is_gone": around.patches_whose_suite_is_gone,
    "dead_paths_in_docs": around.dead_paths_in_docs,
}


def count(tree: Tree) -> dict[str, int]:
    """Returns all figures of a tree."""
    return {name: len(places(tree)) for name, places in FIGURES.items()}
