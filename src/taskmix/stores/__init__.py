"""Images on disk, prepared once: sources of any usual layout in, arrays by class out.

>>> from taskmix.stores import Options
>>> Options(size=32).size
32
"""

from taskmix.stores.glyphs import glyph_split as glyph_split
from taskmix.stores.own import store_of as store_of
from taskmix.stores.prepare import Options as Options
from taskmix.stores.prepare import prepare_store as prepare_store
from taskmix.stores.store import ImageSplit as ImageSplit
from taskmix.stores.store import ImageStore as ImageStore
from taskmix.stores.store import open_store as open_store
from taskmix.stores.store import resized as resized
