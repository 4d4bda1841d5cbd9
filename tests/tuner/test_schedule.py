from keras_sparse.tuner.schedule import INHERITED_SHARE, LONGEST, Schedule, schedule_of

PAPER = {"zero-regularization-epochs": 30, "annealing-epochs": 25, "alpha": 0.5}


def test_the_papers_schedule_is_kept_whole_or_in_proportion():
    assert schedule_of(PAPER, None, inherits=False) == Schedule(70, 30, 25, 0.5)
    assert schedule_of(PAPER, LONGEST + 30, inherits=False) == Schedule(100, 30, 25, 0.5)
    short = schedule_of(PAPER, 14, inherits=False)
    assert short == Schedule(14, 6, 5, 0.5)
    assert short.epochs - short.zero - short.annealing >= 0.2 * short.epochs


def test_inherited_weights_need_fewer_epochs_and_no_annealing():
    assert schedule_of(PAPER, 20, inherits=True) == Schedule(int(20 * INHERITED_SHARE), 0, 0, 0.5)
    assert schedule_of(PAPER, 1, inherits=True).epochs == 1


def test_a_share_of_the_epochs_is_for_recovery():
    assert schedule_of(PAPER, 20, inherits=False, recovery=0.25).recovery == 5
    assert schedule_of(PAPER, 20, inherits=True, recovery=0.25).recovery == 2
    assert schedule_of(PAPER, 20, inherits=True).recovery == 0


def test_without_annealing_and_without_the_papers_names():
    pretrained = {"zero-regularization-epochs": 10, "alpha": 1.0}
    assert schedule_of(pretrained, None, inherits=False) == Schedule(25, 10, 0, 1.0)
    assert schedule_of({"units": 3}, 40, inherits=False) == Schedule(40, 4, 10, 1.0)
