"""An operator at the dashboard, whose clicks are counted."""

from typing import Any

MOST_CLICKS = 4


class Operator:
    """Typing is free; a click, a choice, Enter and an answer to a question count as clicks."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.clicks = 0
        page.on("dialog", self._agree)
        page.goto(address)

    def click(self, what: str) -> None:
        """Click the first element that a selector finds."""
        self.clicks += 1
        self.page.locator(what).first.click()
        self.page.wait_for_load_state()

    def follow(self, text: str, within: str = "body") -> None:
        """Click the first link or button with this text."""
        self.click(f'{within} >> :is(a, button, summary):has-text("{text}")')

    def type(self, field: str, text: str) -> None:
        self.page.locator(field).first.fill(text)

    def search(self, text: str) -> None:
        """Search everything, as `/` and Enter do."""
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        self.clicks += 1
        self.page.keyboard.press("Enter")
        self.page.wait_for_url("**/search?*")

    def reads(self, *texts: str, within: str = "main") -> None:
        """Check that the page shows these texts, within few clicks."""
        shown = " ".join(self.page.locator(within).first.inner_text().split())
        for text in texts:
            assert text.casefold() in shown.casefold(), f"{text!r} is not in {shown!r}"
        assert self.clicks <= MOST_CLICKS, f"{self.clicks} clicks"

    def _agree(self, dialog: Any) -> None:
        self.clicks += 1
        dialog.accept()
