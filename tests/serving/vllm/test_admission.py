"""A request is admitted when the engine has taken it, and not only when the first token is there."""

import asyncio

import pytest

from interlock.serving.vllm.admission import END, Admission, announce_admissions


class Client:
    """vLLM's way to its engine."""

    def __init__(self):
        self.taken = asyncio.Event()
        self.over = asyncio.Event()
        self.closed = False

    async def add_request(self, request_id):
        await self.taken.wait()
        return request_id

    async def generate(self):
        try:
            await self.add_request("1")
            await self.over.wait()
            yield "an output"
        finally:
            self.closed = True


def fine():
    """The check of a first step that has nothing against it."""


async def turn_over():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_request_is_admitted_before_the_first_token():
    async def admitting():
        client = Client()
        announce_admissions(client)
        admission = Admission(client.generate(), fine)
        waiting = asyncio.create_task(admission.wait())
        await turn_over()
        seen = [waiting.done()]
        client.taken.set()
        await turn_over()
        seen.append(waiting.done())
        client.over.set()
        return [*seen, await admission.first_step()]

    assert asyncio.run(admitting()) == [False, True, "an output"]


def test_without_an_announcement_the_first_step_admits():
    async def admitting(steps):
        admission = Admission(steps, fine)
        await admission.wait()
        return await admission.first_step()

    async def steps(*given):
        for step in given:
            yield step

    async def both():
        client = Client()
        client.taken.set()
        client.over.set()
        announce_admissions(object())
        return await admitting(client.generate()), await admitting(steps())

    assert asyncio.run(both()) == ("an output", END)


def test_what_the_first_step_raises_is_raised_to_whoever_waits():
    async def steps():
        raise ValueError("It is refused.")
        yield

    async def admitting():
        admission = Admission(steps(), fine)
        for waiting in (admission.wait, admission.first_step, admission.wait):
            with pytest.raises(ValueError, match=r"It is refused\."):
                await waiting()
        await admission.close()

    asyncio.run(admitting())


def test_an_announcement_outside_of_an_admission_goes_nowhere():
    async def adding():
        client = Client()
        client.taken.set()
        announce_admissions(client)
        return await client.add_request("2")

    assert asyncio.run(adding()) == "2"


def test_closing_ends_the_loop_that_a_step_waits_in():
    async def closing():
        client = Client()
        client.taken.set()
        announce_admissions(client)
        admission = Admission(client.generate(), fine)
        await admission.wait()
        await admission.close()
        return client.closed

    assert asyncio.run(closing())


def test_where_the_engine_may_refuse_later_the_first_step_admits():
    async def admitting():
        client = Client()
        client.taken.set()
        announce_admissions(client)
        admission = Admission(client.generate(), fine, announced=False)
        waiting = asyncio.create_task(admission.wait())
        await turn_over()
        seen = waiting.done()
        client.over.set()
        await waiting
        return seen

    assert asyncio.run(admitting()) is False


def test_a_first_step_that_the_check_refuses_admits_nothing():
    async def steps():
        yield "an output"

    def refuse():
        raise ValueError("It generated nothing.")

    async def admitting():
        with pytest.raises(ValueError, match=r"It generated nothing\."):
            await Admission(steps(), refuse).wait()

    asyncio.run(admitting())
