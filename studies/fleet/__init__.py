"""Fleets: devices that learn together, each from its own samples (docs/fleet.md).

| module | what it holds |
|---|---|
| `messages` | what crosses the network: requests, replies, and their codes for flips, sums and images |
| `device` | one device: answers requests with the C core |
| `vote` | which flips win, which sums count how much: where devices may lie |
| `lead` | the server's side of a round, whatever carries the messages |
| `split` | who has which samples |
| `run` | rounds one after the other: checkpoint, log, table, plot |
| `board`, `gateway` | a device that is a board; the process beside its SuperNode that holds its line |
| `fedavg` | for comparison: Flower's FedAvg of float weights |
| `flower` | messages carried by Flower: simulated on Ray, or deployed |
| `command` | `flipbit fleet` |
"""
