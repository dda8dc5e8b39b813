"""The page of servers is the one that their results make."""

import json

from server_cases import PAGE, RESULTS, page


def test_the_page_of_servers_shows_the_results_as_they_are_kept() -> None:
    assert PAGE.read_text(encoding="utf-8") == "\n".join(page(json.loads(RESULTS.read_text(encoding="utf-8")))) + "\n"
