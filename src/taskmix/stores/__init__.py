"""Images on disk, prepared once: sources of any usual layout in, arrays by class out."""

from taskmix.stores.store import ImageSplit as ImageSplit
from taskmix.stores.store import ImageStore as ImageStore
from taskmix.stores.store import open_store as open_store
from taskmix.stores.store import resized as resized
