"""How tests run the image."""

from __future__ import annotations

from tests.support.hosts import ROOT

IMAGE = str(ROOT / "scripts" / "image")
ENTRYPOINT = ("tini", "-s", "-g", "--", "entrypoint")
# As examples/project/kubernetes wants it: no capability, and no way to one.
CONFINED = ("setpriv", "--no-new-privs", "--")
NO_CAPABILITIES = ("--cap-drop", "ALL")
UID = 1000
