"""HTML as a tree to look things up in."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "input", "hr"}


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self):
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, tag=None, **attributes):
        """Nodes below, by tag and attributes; `class_` is one of the classes."""
        wanted = attributes.pop("class_", None)
        found = []
        for child in self.children:
            if isinstance(child, Node):
                fits = tag in (None, child.tag) and all(child.attributes.get(k) == v for k, v in attributes.items())
                if fits and (wanted is None or wanted in child.attributes.get("class", "").split()):
                    found.append(child)
                found += child.all(tag, **attributes, **({"class_": wanted} if wanted else {}))
        return found

    def one(self, tag=None, **attributes):
        (found,) = self.all(tag, **attributes)
        return found


class Tree(HTMLParser):
    """Raises where tags are not balanced."""

    def __init__(self, text):
        super().__init__()
        self.root = Node("root", {})
        self.open = [self.root]
        self.feed(text)
        self.close()
        assert self.open == [self.root]

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(self.open[-1].children[-1])

    def handle_startendtag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice: {tag} {names}"
        self.open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].children.append(data)


def tree(text):
    assert text.startswith("<!doctype html>\n")
    return Tree(text).root
