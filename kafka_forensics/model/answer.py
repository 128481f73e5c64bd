"""What every whole answer can do with the facts behind it: give them as tables, show itself, write itself as JSON."""

from typing import TYPE_CHECKING, ClassVar, Protocol

from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Views(Protocol):
    """What shows an answer in other forms, and reads the facts behind it again."""

    def table(self, fact: str) -> "pa.Table":
        """A fact as one table. Raises UsageError if there is no such fact."""

    def json(self) -> str:
        """The document that the command line prints with `--format json`."""

    def html(self) -> str:
        """A short page, less than 100 kB whatever was found."""


class Answer:
    """An answer that has `views`, or only its rows without them."""

    __slots__ = ()
    views: Views | None
    _table_fact: ClassVar[str]
    """The fact that is the answer as a table."""
    _made_by: ClassVar[str]
    """The function whose answers have views."""

    def facts(self, name: str) -> "pa.Table":
        """A fact (docs/facts.md) about everything that was scanned, read anew, whole; `export` is for what memory cannot hold.

        Of several snapshots each row begins with the `snapshot` it is of; `changes`, a fact of theirs alone, names two. Raises
        UsageError if there is no such fact. What cannot be read is added to `incomplete`.
        """
        return self._views().table(name)

    def to_arrow(self) -> "pa.Table":
        """The findings of a scan, or the changes between snapshots, as an Arrow table."""
        return self.facts(self._table_fact)

    def to_pandas(self) -> "pd.DataFrame":
        """The same as a pandas DataFrame. Raises UsageError without pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("pandas is not installed", hint="pip install pandas, or use to_arrow()") from error
        return pd.DataFrame(self.to_arrow().to_pandas())

    def to_json(self) -> str:
        """The document that the command line prints with `--format json`; JSON Schemas are in the package's folder `schema`."""
        return self._views().json()

    def _repr_html_(self) -> str | None:
        """What Jupyter shows: the verdict, sums, and the worst of it."""
        return None if self.views is None else self.views.html()

    def _views(self) -> Views:
        if self.views is None:
            raise UsageError("this answer does not know where its facts are", hint=f"take the one that {self._made_by} gives")
        return self.views
