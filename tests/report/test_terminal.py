import io

from rich.console import Console

from fedrank.report.terminal import RunProgress


def test_no_empty_line_stands_before_an_error_where_there_is_no_terminal() -> None:
    written = io.StringIO()
    with RunProgress(Console(file=written)) as bar:
        bar.begin(0, 3)
    assert written.getvalue() == ""
