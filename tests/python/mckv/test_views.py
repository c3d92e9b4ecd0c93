# SPDX-License-Identifier: Apache-2.0
"""Views: read-only, pinned while referenced, safe beyond the client and the interpreter."""

import gc

import mckv
import pytest


def test_a_view_shows_the_bytes_in_place(client, key):
    client.put(key, b"v" * 5000)
    view = client.view(key)
    memory = memoryview(view)
    assert memory.readonly and memory == b"v" * 5000 and len(view) == view.length == 5000
    assert view.tobytes() == bytes(view) == b"v" * 5000
    assert b"".join(view.spans()) == b"v" * 5000 and view.span_count == 1
    view.verify(key)
    view.check()
    with pytest.raises(TypeError):
        memory[0] = 1
    with pytest.raises(mckv.CorruptError):
        view.verify(key(1))


def test_a_view_is_released_once_nothing_uses_it(client, key):
    client.put(key, b"v")
    view = client.view(key)
    memory, span = memoryview(view), view.spans()[0]
    with pytest.raises(BufferError):
        view.release()
    memory.release()
    with pytest.raises(BufferError):
        view.release()
    del span
    view.release()
    view.release()
    assert view.released
    for use in (lambda: memoryview(view), view.tobytes, view.spans, view.check):
        with pytest.raises((BufferError, mckv.InvalidArgumentError)):
            use()
    with client.view(key) as view:
        assert not view.released
    assert view.released


def test_a_view_keeps_its_bytes_when_the_object_goes(client, key):
    client.put(key, b"old" * 1000)
    old = memoryview(client.view(key))
    client.put(key, b"new" * 1000, upsert=True)
    new = memoryview(client.view(key))
    assert client.remove(key)
    for i in range(200):
        client.put(key(i), bytes([i]) * 3000)
    assert old == b"old" * 1000 and new == b"new" * 1000


def test_views_outlive_the_client(client, key):
    client.put(key, b"v" * 5000)
    view = client.view(key)
    memory = memoryview(client.view(key))
    client.close()
    gc.collect()
    assert view.tobytes() == memory == b"v" * 5000


def test_a_thread_holds_a_thousand_views(client, key):
    client.put(key, b"v")
    views = [client.view(key) for _ in range(1000)]
    with pytest.raises(mckv.BusyError):
        views += [client.view(key) for _ in range(100)]
    views.clear()
    assert client.view(key).tobytes() == b"v"


def test_numpy_arrays_are_read_only_and_keep_the_view(client, key):
    numpy = pytest.importorskip("numpy")
    given = numpy.arange(24, dtype="i4").reshape(2, 3, 4)
    client.put(key, given)
    array = client.view(key).numpy("i4", (2, 3, 4))
    client.remove(key)
    client.close()
    assert (array == given).all()
    with pytest.raises(ValueError):
        array[0, 0, 0] = 1
    with pytest.raises(ValueError):
        array.flags.writeable = True


def test_torch_tensors_refuse_to_be_written(client, key):
    torch = pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    client.put(key, torch.arange(10, dtype=torch.int32))
    tensor = client.view(key).torch(torch.int32, (2, 5))
    assert tensor.sum().item() == 45 and (tensor + 1).sum().item() == 55
    for write in (
        lambda: tensor.add_(1),
        lambda: tensor.zero_(),
        lambda: tensor[0].zero_(),
        lambda: tensor.__setitem__(0, 1),
        lambda: tensor.view(10).fill_(0),
        lambda: tensor.t().copy_(torch.zeros(5, 2)),
        lambda: torch.add(tensor, 1, out=tensor),
        lambda: tensor.mul_(2),
    ):
        with pytest.raises(ValueError, match="read-only"):
            write()
    for array in (tensor.numpy(), numpy.asarray(tensor), tensor.detach().numpy()):
        with pytest.raises(ValueError):
            array[0] = 1
    mine = tensor + 1
    mine.add_(1)
    copy = tensor.clone()
    copy.zero_()
    assert type(copy) is torch.Tensor and tensor.sum().item() == 45


def test_batches_of_views(client, key):
    client.put(key(1), b"1")
    views = client.view_batch([key(1), key(2)])
    assert views[0].tobytes() == b"1" and views[1] is None


EXIT = """
import sys, mckv, threading, time
client = mckv.Client(*sys.argv[1:2])
client.put("exit.key", b"v" * 9000, upsert=True)
view = client.view("exit.key")
memory = memoryview(client.view("exit.key"))
cycle = [view]; cycle.append(cycle)
class Late:
    def __del__(self, memory=memory):
        assert memory[0] == ord("v")
late = Late()
def work():
    buffer = bytearray(9000)
    while True:
        client.get_into("exit.key", buffer)
        client.put("exit.key", b"v" * 9000, upsert=True)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print("done", flush=True)
"""


@pytest.mark.parametrize("place", ["embedded", "agent"])
def test_the_interpreter_ends_with_live_views_and_busy_threads(
    place, run_python, shared_agent, long
):
    for _ in range(100 if long else 5):
        status, out, err = run_python(
            EXIT, "embedded" if place == "embedded" else shared_agent.socket
        )
        assert (status, out) == (0, "done\n"), err


FORK = """
import os, sys, mckv
client = mckv.Client(sys.argv[1])
client.put("fork.key", b"v", upsert=True)
view = client.view("fork.key")
group, reservation, buffer = client.group(), client.reserve(10), client.alloc(10)
child = os.fork()
if child == 0:
    for call in (lambda: client.get("fork.key"), lambda: client.put("a", b"b"),
                 lambda: view.tobytes(), lambda: client.exists("a"), lambda: group.put("a", b"b"),
                 lambda: reservation.commit("a"), lambda: client.info(), lambda: client.ping(),
                 lambda: client.put_batch(["a"], [b"b"]), lambda: client.remove("a")):
        try:
            call()
        except mckv.ForkedError as error:
            assert "child" in error.remedy
        else:
            os._exit(3)
    for make in (view, reservation, buffer):
        try:
            memoryview(make)
        except BufferError:
            pass
        else:
            os._exit(4)
    client.close()
    del view, group, reservation, buffer, client
    if sys.argv[1] != "embedded":
        with mckv.Client(sys.argv[1]) as mine:
            assert mine.get("fork.key") == b"v"
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert view.tobytes() == b"v" == client.get("fork.key")
print("done")
"""


@pytest.mark.parametrize("place", ["embedded", "agent"])
def test_a_forked_child_gets_a_clear_error(place, run_python, shared_agent):
    status, out, err = run_python(FORK, "embedded" if place == "embedded" else shared_agent.socket)
    assert (status, out) == (0, "done\n"), err
