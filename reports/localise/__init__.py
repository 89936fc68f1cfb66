"""Name the culprit: from a pair table to suspects with evidence and confidence. Numpy only; measures nothing.

    table = PairTable.of(a=senders, b=receivers, rail=rails, round=rounds, value=bandwidths)
    findings = screen(table, topology=topology.read(text))   # whoever looks slow
    findings = confirm(findings, retest)                     # and still does, with other partners
    for suspect in findings.accused:
        print(suspect.title, suspect.evidence)

pairs       the table: one row per flow            topology    what hangs where, from three kinds of file
effects     the robust two-way fit, noise, odds    fabric      leaves of every flow; the weather of a round
levels      rails and flows slow as a whole        blocks      leaves and uplinks
paths       one uplink of several                  sides       transmit and receive of every NIC
decision    which pattern means what               symptoms    corruption, loss, collisions
crowding    slow only when flows run together      confirmation  stage two
screening   stage one
suspects    what is said                           stragglers  who is late in compute and collectives

How it works and how well: docs/localise.md.
"""

from reports.localise.confirmation import confirm
from reports.localise.pairs import PairTable
from reports.localise.screening import screen
from reports.localise.suspects import Findings, Suspect
from reports.localise.topology import Topology

__all__ = ["Findings", "PairTable", "Suspect", "Topology", "confirm", "screen"]
