"""The paper's experiments on nets, each one command: ``python train/reproduce.py NAME``.

================  ==========================================================================
:mod:`table1`     five methods, their test errors and convergence (Table 1, Figure 6)
:mod:`changes`    the share of weights that R, BC and SR changed (Figure 4)
:mod:`batch`      what a bigger batch does to SR and BC (Figure 5)
:mod:`decay`      weight decay on BC and the distance |w_b − w_r| (Figure 7)
:mod:`buffer`     our question: how many buffer bits, and which rule, lie between SR and BC
:mod:`recipes`    what each option of ``train/run.py`` for long trainings brings in a short one
================  ==========================================================================

Each has ``run(scale, runner, folder, seed)``, trains its nets through a :class:`~flipbit.train.experiments.grid.Runner`
and returns an :class:`~flipbit.train.theory.outcome.Outcome`. :mod:`scales` says what quick, small and paper
mean, :mod:`rules` has the update rules without float state, :mod:`report` makes the HTML page.
"""
