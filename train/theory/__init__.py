"""The paper's theory, run: each experiment computes what a theorem speaks of and compares.

==============  =====================================================================
:mod:`toy`      the one-dimensional non-convex problem, BC against SR (Figure 2)
:mod:`convex`   Lemma 1, Theorems 1 to 4 and the corollary on quadratics
:mod:`markov`   SR as a Markov chain: Theorems 5 and 6, and the three states of Figure 3
==============  =====================================================================

Each has ``run(scale, folder, seed)``, which draws into ``folder`` and returns an
:class:`~flipbit.train.theory.outcome.Outcome`. ``docs/theory.md`` tells the story.
"""
