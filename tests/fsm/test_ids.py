from interlock.fsm.ids import SequentialIds


def test_each_prefix_is_counted_from_one():
    ids = SequentialIds()
    assert [ids(prefix) for prefix in ("msg", "rs", "msg")] == ["msg_1", "rs_1", "msg_2"]


def test_every_source_of_ids_counts_from_one():
    assert [SequentialIds()("msg"), SequentialIds()("msg")] == ["msg_1", "msg_1"]
