"""Work on many things, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, DeferredList, FirstError

T = TypeVar("T")


async def for_each(
    items: Iterable[T], work: Callable[[T], Coroutine[Deferred[Any], Any, object]], at_once: int
) -> None:
    """Do ``work`` on each item, on ``at_once`` of them at a time; items are taken when it is time.

    The first error ends all of it and is raised as it was. So does cancelling. What was under way
    has been cancelled and has ended then.
    """
    iterator = iter(items)

    async def go_on(item: T) -> None:
        await work(item)
        for following in iterator:
            await work(following)

    under_way = [Deferred.fromCoroutine(go_on(item)) for item in islice(iterator, at_once)]
    try:
        await DeferredList(under_way, fireOnOneErrback=True, consumeErrors=True)
    except FirstError as error:
        for one in under_way:
            one.cancel()
        await DeferredList(under_way, consumeErrors=True)
        error.subFailure.raiseException()
